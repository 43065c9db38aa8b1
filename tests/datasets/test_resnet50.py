"""From images and a file of weights to all tables, by one command: small made images, random
weights.
"""

import json
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from dco.cli.main import main
from dco.datasets import Backbone, open_images, resnet50
from dco.datasets.backbone import features_of_backbone
from dco.paper import classification_splits
from dco.paper.classification_splits import RoleSizes, Scale
from dco.paper.heads import Training

COLOURS = ((200, 40, 40), (40, 200, 40), (40, 40, 200), (180, 180, 40))


def run(*words):
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def small(monkeypatch):
    """200 images are enough for a split."""
    scale = Scale(RoleSizes(60, 40, 60, 40), Training(epochs=10, passes=5))
    monkeypatch.setattr(classification_splits, "QUICK_SCALE", scale)


def noisy(colour, rng):
    return np.clip(np.asarray(colour) + 60 * rng.normal(size=(32, 32, 3)), 0, 255).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    """One folder per class, as ImageNet-A."""
    rng = np.random.default_rng(0)
    for place, colour in enumerate(COLOURS):
        (tmp_path / "made" / f"n{place:08}").mkdir(parents=True)
        for number in range(52):
            Image.fromarray(noisy(colour, rng)).save(
                tmp_path / "made" / f"n{place:08}" / f"{number:03}.png"
            )
    return tmp_path / "made"


@pytest.fixture
def records_of_cifar(tmp_path):
    """The binary version of CIFAR-100."""
    rng, made = np.random.default_rng(1), []
    for number in range(208):
        pixels = noisy(COLOURS[number % 4], rng).transpose(2, 0, 1)
        made.append(bytes([0, number % 4]) + pixels.tobytes())
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar" / "train.bin").write_bytes(b"".join(made[:150]))
    (tmp_path / "cifar" / "test.bin").write_bytes(b"".join(made[150:]))
    return tmp_path / "cifar"


def colours_as_network(**_):
    """A stand-in for ResNet-50 where torch is not installed: 8 numbers per image, none negative."""
    return lambda images: np.stack(
        [[*image.mean(axis=(0, 1)), *image.std(axis=(0, 1)), 1, 2] for image in images]
    )


def check_tables(out, name, *others):
    for each in (name, *others):
        page = (out / each / "tables.md").read_text()
        assert "ResNet-50 (weights with SHA-256" in page
        assert "EfficientNet" not in page
    settings = json.loads((out / name / "settings.json").read_text())["settings"]
    assert settings["features"].startswith("resnet50, ")


@pytest.mark.parametrize("name", ["imagenet-a", "cifar100"])
def test_one_command_goes_from_images_to_tables(name, request, tmp_path, small, monkeypatch):
    """With a stand-in for the network. The second run finds every batch in the cache, and asks for
    no network.
    """
    place = request.getfixturevalue("folder" if name == "imagenet-a" else "records_of_cifar")
    weights, out = tmp_path / "resnet50-made.pth", tmp_path / "out"
    weights.write_bytes(b"any")
    monkeypatch.setattr("dco.datasets.backbone.resnet50", colours_as_network)
    ask = partial(
        run,
        "reproduce",
        "--features",
        "resnet50",
        "--images",
        str(place),
        "--weights",
        str(weights),
    )
    flags = ("--quick", "--splits", "1", "--jobs", "1", "--out", str(out))
    found = ask(name, *flags)
    assert found.exit_code == 0, found.output
    monkeypatch.setattr("dco.datasets.backbone.resnet50", None)
    others = (
        ()
        if name == "imagenet-a"
        else ("matched", "split-ratio", "alpha-levels", "beyond-cifar100")
    )
    for each in (name, *others):
        features_of_backbone.cache_clear()
        assert (found := ask(each, *flags)).exit_code == 0, found.output
    check_tables(out, name, *others)
    other = tmp_path / "other.pth"
    other.write_bytes(b"another")  # records of other features are not mixed with these
    found = run(
        "reproduce",
        name,
        "--features",
        "resnet50",
        "--images",
        str(place),
        "--weights",
        str(other),
        *flags,
    )
    assert found.exit_code != 0
    assert "was made with features" in found.output
    wrong = ask("imagenet-a" if name == "cifar100" else "cifar100", *flags)
    assert "ImageNet-A" in wrong.output
    assert wrong.exit_code != 0
    assert {each.name for each in out.iterdir()} == {name, *others}


def test_one_command_makes_all_tables_of_the_images_and_no_other(
    records_of_cifar, tmp_path, small, monkeypatch
):
    weights, out = tmp_path / "resnet50-made.pth", tmp_path / "out"
    weights.write_bytes(b"any")
    monkeypatch.setattr("dco.datasets.backbone.resnet50", colours_as_network)
    given = (
        "--features",
        "resnet50",
        "--images",
        str(records_of_cifar),
        "--weights",
        str(weights),
        "--out",
        str(out),
    )
    found = run("reproduce", "all", *given, "--quick", "--splits", "1", "--jobs", "1")
    assert found.exit_code == 0, found.output
    of_images = {
        "cifar100",
        "matched",
        "split-ratio",
        "alpha-levels",
        "beyond-cifar100",
        "protocol-cifar100",
    }
    assert {each.name for each in out.iterdir()} == {"all", *of_images}
    check_tables(out, "cifar100", *sorted(of_images - {"cifar100"}))


@pytest.fixture
def models(monkeypatch):
    """torchvision.models; where only torch is installed, the same network by the names of
    torchvision's file.
    """
    pytest.importorskip("torch")
    if find_spec("torchvision") is None:
        monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "toys"))
        by_hand = import_module("resnet50_by_hand")
        monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=by_hand))
        monkeypatch.setitem(sys.modules, "torchvision.models", by_hand)
    return import_module("torchvision.models")


def test_torchvisions_file_of_weights_is_read_and_its_features_reach_the_tables(
    folder, tmp_path, small, models
):
    import torch

    torch.manual_seed(0)
    made = models.resnet50(weights=None)
    assert len(made.state_dict()) == 320  # as in torchvision's files
    assert {
        "conv1.weight",
        "layer1.0.downsample.1.running_var",
        "layer4.2.bn3.bias",
        "fc.bias",
    } <= {*made.state_dict()}
    torch.save(made.state_dict(), tmp_path / "resnet50-random.pth")
    found = run(
        *(
            "reproduce",
            "imagenet-a",
            "--features",
            "resnet50",
            "--images",
            str(folder),
            "--quick",
            "--splits",
            "1",
        ),
        *(
            "--weights",
            str(tmp_path / "resnet50-random.pth"),
            "--jobs",
            "1",
            "--out",
            str(tmp_path / "out"),
        ),
    )
    assert found.exit_code == 0, found.output
    check_tables(tmp_path / "out", "imagenet-a")
    backbone = Backbone(str(folder), str(tmp_path / "resnet50-random.pth"))
    data = backbone.features()
    assert data.features.shape == (208, 2048)
    made.fc = torch.nn.Identity()
    prepare = models.ResNet50_Weights.DEFAULT.transforms()
    image = open_images(folder).read(7, 8)[0]
    with torch.inference_mode():
        own = made.eval()(prepare(torch.from_numpy(np.array(image)).permute(2, 0, 1))[None]).numpy()
    assert np.allclose(data.features[7], own, atol=1e-4 * np.abs(own).max())
    (tmp_path / "bad.pth").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="does not hold the weights of torchvision's ResNet-50"):
        resnet50(weights_file=tmp_path / "bad.pth")


def test_what_is_missing_is_said_before_any_work(tmp_path, folder):
    weights = tmp_path / "w.pth"
    found = run("reproduce", "cifar100", "--features", "resnet50", "--images", str(folder))
    assert "--features, --images and --weights go together" in found.output
    given = (
        "--features",
        "resnet50",
        "--images",
        str(folder),
        "--weights",
        str(weights),
        "--out",
        str(tmp_path / "out"),
    )
    assert f"There is no {weights}" in run("reproduce", "imagenet-a", *given).output
    weights.write_bytes(b"")
    assert "diabetes has no image features" in run("reproduce", "diabetes", *given).output
