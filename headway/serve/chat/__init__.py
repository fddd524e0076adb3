"""Conversations and tool calls of chat models."""
