"""Gaussian mixtures on the line: their density, mass and level sets, to rounding.

Facts that the search for level sets {y : log f(y) >= level} uses:

- f is at most its largest component, so the set lies in the hull of mu_t +- s_t sqrt(2 (c_t -
  level)), c_t the log of component t's peak: a finite set is never cut off (`pieces`).
- Outside the hull of the means f is monotone on either side, whatever the sds: every mode lies
  between two means.
- f holds no detail finer than its smallest sd. Where Chebyshev nodes lie closer than that and the
  coefficients of log f have died out, the interpolant shows every crossing, and each is corrected
  by log f itself (`chebyshev`).
- Elsewhere intervals are halved until bounds on f or f' decide them (`certified`).
"""
