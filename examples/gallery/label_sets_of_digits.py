"""Label sets: one answer where the picture is clear, several where it is not.

At 98 % most of scikit-learn's digits get a set of one label. The six with the largest sets are
below.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils import shuffle

import dco

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
est = dco.DecoupledClassifier(
    LogisticRegression(max_iter=5000), dco.scores.LAC(), alpha=0.02, random_state=0
)
est.fit(X[:1200], y[:1200])
sets = est.predict_set(X[1200:])
print(
    f"coverage {sets.contains(y[1200:]).mean():.3f}, sets of one label "
    f"{np.mean(sets.sizes() == 1):.0%}"
)

hardest = np.argsort(-sets.sizes(), kind="stable")[:6]
figure, panels = plt.subplots(1, 6, figsize=(7, 1.9))
for panel, row in zip(panels, hardest, strict=True):
    panel.imshow(X[1200 + row].reshape(8, 8), cmap="Greys")
    panel.set_title(", ".join(map(str, sets.to_lists()[row])), fontsize=8)
    panel.set_xlabel(f"it is {y[1200 + row]}", fontsize=8)
    panel.set(xticks=[], yticks=[])
