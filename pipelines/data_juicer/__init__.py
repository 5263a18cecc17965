"""Data-Juicer's operators as steps of `rejuice run`; `dj_process` is the other way round."""
