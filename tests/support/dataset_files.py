"""The files that a dataset consists of, as a run finds them."""

from rejuice.pipelines.dataset.read import Dataset


def dataset_files(dataset):
    """The files of a dataset, part by part, in each by name."""
    return [file.path for file in Dataset(dataset).files]
