"""Stand-ins for other ELMo packages, so that code written for them runs on ours."""
