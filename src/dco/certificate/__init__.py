"""What is certified: facts and words of a certificate, their verification, and planning."""
