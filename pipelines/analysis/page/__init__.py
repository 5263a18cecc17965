"""One HTML file to look at runs: figures, plots, and a browser of samples."""
