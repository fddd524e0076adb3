"""OpenAI's Responses API: a conversation that the server can remember."""
