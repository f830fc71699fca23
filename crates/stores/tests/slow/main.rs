//! Floods in real time: a machine that stalls may fail these tests.

mod floods;
