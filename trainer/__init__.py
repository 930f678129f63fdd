"""The learner: verl's `TrainingWorker` for the policy and the world model."""
