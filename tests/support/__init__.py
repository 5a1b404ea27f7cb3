"""What the tests share: data, small models, commands in processes of their own, and plugins of the runner."""
