"""Several runs side by side: grouped by their settings, summed up over seeds, drawn, tabulated."""
