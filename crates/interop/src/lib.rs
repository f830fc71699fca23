//! Tests of tollgate against programs of other languages; see `tests`.
