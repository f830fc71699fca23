//! Tests of tollgate over several stores; see `tests`.
