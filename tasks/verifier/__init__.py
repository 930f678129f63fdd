"""Verification as Harbor does it, and what stands in for the test runner that a task would download."""
