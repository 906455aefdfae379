"""Pools of worker processes on this machine, and what starts and limits those processes."""
