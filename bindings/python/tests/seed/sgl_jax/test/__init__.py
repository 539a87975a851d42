"""What the score seed's files import."""
