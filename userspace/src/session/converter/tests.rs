//! Events by hand, and what an independent reading of the lines makes of them.
