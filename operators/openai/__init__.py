"""The client of OpenAI-compatible servers, shared by sampling and scoring."""
