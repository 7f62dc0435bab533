"""The whole operator in virtual time: `decide` on a cluster in memory, whose engines are simulated."""
