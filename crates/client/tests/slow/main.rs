//! Clients that wait in real time until they are admitted. A machine that stalls may fail these tests.

mod clients;
