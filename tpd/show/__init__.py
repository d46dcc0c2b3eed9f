"""What a person looks at: functions of explanations and errors."""
