"""What a run leaves: its export, the audit log, and how a run that is finished is recognised."""
