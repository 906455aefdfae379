"""What sweep.py is made of: the space, trials in processes of their own, the study, its report."""
