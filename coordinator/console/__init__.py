"""The coordinator's console: what operators, authors and viewers see and do in a browser.

Every page and every action goes through the desk, with the rights of the certificate (`coordinator.people.desk`).
"""
