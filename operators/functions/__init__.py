"""Functions of users that grade responses, in processes of their own with a deadline.

target     which function is meant, and a digest of its code
process    what runs in the processes: it loads the function and calls it
pool       the processes, as their caller sees them
signature  what the function takes
"""
