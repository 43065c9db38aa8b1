"""What is guaranteed: statement, threshold rules, calibration, certificate, verification, laws and
planning.
"""
