"""A small study on made-up features, for tests of the classification experiments."""

from dco.paper.classification_splits import RoleSizes, Scale, Study
from dco.paper.heads import Training

SMALL = RoleSizes(train=150, tune=60, calibrate=120, test=100)
FAST = Training(epochs=2, passes=3, widths=((16, 8), (8, 4)))
ALPHAS = (0.2, 0.1)
N_CLASSES = 5


def make_study(data):
    """Make a study of these features with few rows and short training."""
    return Study(
        name="cifar100",
        title="Made-up",
        data_note="Made-up features.",
        load=lambda data_home: data,
        has_stronger_class=True,
        scale=Scale(SMALL, FAST),
    )
