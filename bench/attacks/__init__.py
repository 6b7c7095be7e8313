"""What an attacker, or a hospital by mistake, can do: to a coordinator, to a study, and to patients' privacy."""
