"""Image features: folders, archives and CIFAR-100's records; caching and going on; the features on
disk.
"""

import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from dco.datasets import (
    CIFAR100_FEATURES,
    extract_features,
    load_cifar100_features,
    open_images,
    resnet50,
)
from dco.datasets.backbone import whole_single_precision
from dco.datasets.image_sources import Cifar100, ClassFolders
from dco.foundations.errors import MissingExtraError

COLOURS = {"n01498041": (250, 10, 10), "n01531178": (10, 250, 10), "n01534433": (10, 10, 250)}


def mean_colour(images):
    """A stand-in for a network: three features per image."""
    return np.stack([image.reshape(-1, 3).mean(axis=0) for image in images])


class Counting:
    """A network that counts its images, and stops as a cut power cord would."""

    def __init__(self, stop_after=None):
        self.seen = 0
        self.stop_after = stop_after

    def __call__(self, images):
        if self.stop_after is not None and self.seen >= self.stop_after:
            raise KeyboardInterrupt
        self.seen += len(images)
        return mean_colour(images)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "imagenet-a"
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(3):
            shade = tuple(c - 2 * i for c in colour)
            Image.new("RGB", (20 + i, 30), shade).save(root / name / f"{i}.png")
    (root / "README.txt").write_text("not an image")
    return root


@pytest.fixture
def extract(folder, tmp_path):
    """`extract_features` of the images in the folder."""

    def run(network=mean_colour, *, name="mean", batch_size=4, progress=False):
        images = ClassFolders.of(folder)
        return extract_features(
            images,
            network,
            cache=tmp_path / "cache",
            name=name,
            batch_size=batch_size,
            progress=progress,
        )

    return run


def _packed(folder, kind):
    path = folder.parent / f"images.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.rglob("*"), reverse=True):
                archive.write(file, file.relative_to(folder.parent))
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            archive.add(folder, folder.name)
    return path


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz"])
def test_class_folders_are_read_from_disk_and_from_archives(folder, kind, tmp_path):
    images = open_images(folder if kind == "folder" else _packed(folder, kind))
    assert isinstance(images, ClassFolders)
    assert images.class_names == tuple(COLOURS)
    np.testing.assert_array_equal(images.labels, np.repeat([0, 1, 2], 3))
    result = extract_features(
        images, mean_colour, cache=tmp_path / "cache", name="mean", batch_size=4, progress=False
    )
    expected = [[c - 2 * i for c in colour] for colour in COLOURS.values() for i in range(3)]
    np.testing.assert_array_equal(result.features, expected)
    assert result.features.dtype == np.float32
    assert len(result) == 9


def test_grey_and_transparent_images_become_three_colours(folder):
    Image.new("L", (4, 4), 99).save(folder / "n01498041" / "grey.png")
    Image.new("RGBA", (4, 4), (1, 2, 3, 4)).save(folder / "n01498041" / "glass.png")
    assert {image.shape[2] for image in ClassFolders.of(folder).read(0, 11)} == {3}


def _cifar(root, n=5):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 100, (2 * n, 2 + 3072), dtype=np.uint8)
    root.mkdir()
    (root / "train.bin").write_bytes(records[:n].tobytes())
    (root / "test.bin").write_bytes(records[n:].tobytes())
    (root / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(100)) + "\n")
    return records


@pytest.mark.parametrize("kind", ["folder", "tar.gz"])
def test_cifar_records_give_fine_labels_and_channel_last_pixels(tmp_path, kind):
    root = tmp_path / "cifar-100-binary"
    records = _cifar(root)
    images = open_images(root if kind == "folder" else _packed(root, kind))
    assert isinstance(images, Cifar100)
    np.testing.assert_array_equal(images.labels, records[:, 1])
    assert images.class_names[99] == "class99"
    third = images.read(2, 3)[0]
    assert third.shape == (32, 32, 3)
    # Row 4, column 7: offsets 4 · 32 + 7 in the red, green and blue planes.
    np.testing.assert_array_equal(third[4, 7], records[2, 2 + 135 :: 1024][:3])


def test_an_interrupted_run_goes_on_where_it_stopped(folder, tmp_path, extract):
    with pytest.raises(KeyboardInterrupt):
        extract(Counting(stop_after=4), batch_size=2)
    rest, nothing = Counting(), Counting()
    result = extract(rest, batch_size=2)
    np.testing.assert_array_equal(
        result.features, mean_colour(ClassFolders.of(folder).read(0, 9)).astype(np.float32)
    )
    np.testing.assert_array_equal(extract(nothing, batch_size=2).features, result.features)
    assert (rest.seen, nothing.seen) == (9 - 4, 0)
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".json", ".npy"}


def test_a_cache_of_other_origin_is_refused(folder, extract):
    extract()
    for changed, message in (
        ({"name": "resnet50"}, "made with network = 'mean', not 'resnet50'"),
        ({"batch_size": 5}, "made with batch_size = 4"),
    ):
        with pytest.raises(ValueError, match=message):
            extract(**changed)
    Image.new("RGB", (9, 9)).save(folder / "n01498041" / "0.png")
    with pytest.raises(ValueError, match="made with images"):
        extract()


def test_progress_counts_batches(extract, capsys):
    extract(progress=True)
    assert "mean: features" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda images: np.zeros(len(images)), "one row per image"),
        (lambda images: np.zeros((1, 4)), "one row per image"),
        (lambda images: np.full((len(images), 2), np.nan), "not finite for image 0"),
    ],
)
def test_a_network_that_gives_something_else_is_named(extract, network, message):
    with pytest.raises(ValueError, match=message):
        extract(network)


def test_bad_sources_are_named(folder, tmp_path, extract):
    (tmp_path / "empty").mkdir()
    (folder / "n01498041" / "broken.png").write_bytes(b"no image")
    _cifar(tmp_path / "cifar")
    (tmp_path / "cifar" / "test.bin").write_bytes(b"\0" * 100)
    for message, call in {
        "neither a folder nor": lambda: open_images(folder / "README.txt"),
        "holds no images": lambda: open_images(tmp_path / "empty"),
        r"holds no train\.bin": lambda: Cifar100.of(tmp_path / "empty"),
        r"broken\.png.*cannot be read as an image": lambda: ClassFolders.of(folder).read(0, 10),
        "cut short": lambda: Cifar100.of(tmp_path / "cifar"),
        "batch_size must be at least 1": lambda: extract(batch_size=0),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_images(tmp_path / "nowhere")
    Image.new("RGB", (9, 9)).save(folder / "loose.png")
    with pytest.raises(ValueError, match="in no folder"):
        ClassFolders.of(folder)


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_the_extra_is_named():
    with pytest.raises(MissingExtraError, match=r"\[images\]"):
        resnet50()


@pytest.mark.skipif(
    find_spec("torchvision") is None, reason="torchvision (extra images) is not installed"
)
def test_an_untrained_resnet_gives_2048_features(folder, extract):
    network = resnet50(pretrained=False, device="cpu")
    result = extract(network, name="resnet50")
    assert result.features.shape == (9, 2048)
    np.testing.assert_allclose(
        network(ClassFolders.of(folder).read(8, 9))[0], result.features[8], rtol=1e-3, atol=1e-4
    )


@pytest.mark.skipif(
    find_spec("torchvision") is None, reason="torchvision (extra images) is not installed"
)
def test_features_depend_neither_on_the_batch_nor_on_a_gpu(folder):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    torch.manual_seed(0)
    on_gpu = resnet50(pretrained=False)
    torch.manual_seed(0)
    on_cpu = resnet50(pretrained=False, device="cpu")
    images = ClassFolders.of(folder).read(0, 9)
    features = on_gpu(images)
    scale = np.abs(features).max()
    np.testing.assert_allclose(features / scale, on_cpu(images) / scale, atol=2e-5)
    np.testing.assert_allclose(features[3] / scale, on_gpu(images[3:4])[0] / scale, atol=2e-5)


@pytest.mark.parametrize(
    ("cudnn", "read"),
    [
        (
            SimpleNamespace(conv=SimpleNamespace(fp32_precision="tf32")),
            lambda cudnn: cudnn.conv.fp32_precision,
        ),
        (SimpleNamespace(allow_tf32=True), lambda cudnn: cudnn.allow_tf32),
    ],
    ids=["torch 2.9 and later", "older torch"],
)
def test_the_callers_precision_comes_back(cudnn, read):
    before = read(cudnn)

    @whole_single_precision(cudnn)
    def fail():
        assert read(cudnn) in ("ieee", False)
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert read(cudnn) == before


def test_real_features_are_loaded_from_their_folder(monkeypatch, data_home):
    if data_home is None or not (Path(data_home) / CIFAR100_FEATURES).exists():
        pytest.skip("the CIFAR-100 features are not here")
    data = load_cifar100_features(data_home)
    assert data.features.shape == (20_000, 1280)
    assert data.features.dtype == np.float32
    np.testing.assert_array_equal(np.bincount(data.labels), np.full(100, 200))
    monkeypatch.setenv("DCO_DATA_HOME", data_home)
    np.testing.assert_array_equal(load_cifar100_features().labels, data.labels)


def test_missing_and_foreign_feature_files_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DCO_DATA_HOME", raising=False)
    with pytest.raises(FileNotFoundError, match="DCO_DATA_HOME"):
        load_cifar100_features()
    with pytest.raises(FileNotFoundError):
        load_cifar100_features(tmp_path)
    np.savez(tmp_path / CIFAR100_FEATURES, features=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="no array 'labels'"):
        load_cifar100_features(tmp_path)
    np.savez(tmp_path / CIFAR100_FEATURES, features=np.zeros((2, 3)), labels=np.zeros(3))
    with pytest.raises(ValueError, match="labels of shape"):
        load_cifar100_features(tmp_path)
