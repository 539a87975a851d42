"""What the score seed's files import (docs/seeds.md), over Redline."""
