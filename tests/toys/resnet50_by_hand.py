"""ResNet-50 in torch, layer by layer under the names of torchvision's file of weights, for machines
without torchvision.
"""

from enum import Enum

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = (
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride > 1 or inside != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        way = self.bn1(self.conv1(x)).relu()
        way = self.bn3(self.conv3(self.bn2(self.conv2(way)).relu()))
        return (way + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.pool, inside = nn.MaxPool2d(3, 2, 1), 64
        for place, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
            layer = []
            for block in range(blocks):
                layer.append(Bottleneck(inside, width, 2 if block == 0 and place > 1 else 1))
                inside = 4 * width
            setattr(self, f"layer{place}", nn.Sequential(*layer))
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        x = self.pool(self.bn1(self.conv1(x)).relu())
        for place in (1, 2, 3, 4):
            x = getattr(self, f"layer{place}")(x)
        return self.fc(x.mean(dim=(2, 3)))


class ResNet50_Weights(Enum):  # noqa: N801  # as torchvision names it
    """Two sets of weights, which prepare images in their own ways; DEFAULT is the second."""

    IMAGENET1K_V1 = 0.5
    IMAGENET1K_V2 = 0.4
    DEFAULT = 0.4

    @property
    def url(self):
        return {
            0.5: "https://here/resnet50-0676ba61.pth",
            0.4: "https://here/resnet50-11ad3fa6.pth",
        }[self.value]

    def transforms(self):
        return lambda image: (
            (nn.functional.interpolate(image[None].float(), size=32)[0] / 255 - self.value) / 0.25
        )


def resnet50(weights=None):
    assert weights is None, "nothing is downloaded in a test"
    with torch.no_grad():
        return ResNet50()
