"""One folder a framework, one file a rule. Living here is registration."""
