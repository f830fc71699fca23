//! The routes for operators.

mod examples;
mod redis;
mod redis_guide;
mod routes;
