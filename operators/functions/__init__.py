"""Functions of users that grade responses, in processes of their own with a deadline.

target   which function is meant, a digest of its code, and what its source says that it takes
process  what runs in the processes: it loads the function and calls it
pool     the processes, as their caller sees them
"""
