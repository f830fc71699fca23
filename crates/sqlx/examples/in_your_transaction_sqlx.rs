//! An order and its token, in one transaction of `sqlx`: if the order fails, the token comes back.
//!
//! Run it with `DATABASE_URL=postgres://app@127.0.0.1/app cargo run -p tollgate-sqlx --example
//! in_your_transaction_sqlx`. It makes a table of its own for its orders.

use std::error::Error;

use sqlx::PgPool;
use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter};
use tollgate_postgres::Postgres;
use tollgate_sqlx::Sqlx;

const ORDERS: Limit = Limit::new("orders", Quota::token_bucket(3, DAY));

/// Orders that a shop can take.
pub(crate) struct Shop {
    pub(crate) pool: PgPool,
    pub(crate) store: Postgres,
    pub(crate) limiter: RateLimiter,
}

impl Shop {
    pub(crate) async fn open(url: &str) -> Result<Self, Box<dyn Error>> {
        let store = Postgres::connect(url).await?;
        let limiter = RateLimiter::new(store.clone());
        let pool = PgPool::connect(url).await?;
        let table = "CREATE TABLE IF NOT EXISTS example_orders \
                     (customer text NOT NULL, item text NOT NULL, UNIQUE (customer, item))";
        sqlx::query(table).execute(&pool).await?;
        Ok(Self { pool, store, limiter })
    }

    /// Stores an order and takes a token for it: both, or neither.
    pub(crate) async fn order(&self, customer: &str, item: &str) -> Result<u64, Box<dyn Error>> {
        let mut transaction = self.pool.begin().await?;
        // The token is taken first here, to show that a failure behind it gives the token back.
        let remaining = self
            .store
            .in_transaction(Sqlx::new(&mut transaction), async |store| {
                let limiter = self.limiter.with_backend(store);
                let permit = limiter.limit(&ORDERS).key(customer).await?;
                Ok::<_, RateLimited>(permit.remaining())
            })
            .await?;
        let order = sqlx::query("INSERT INTO example_orders VALUES ($1, $2)");
        order.bind(customer).bind(item).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(remaining)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "say where the database is: DATABASE_URL=postgres://user@host/database")?;
    let shop = Shop::open(&url).await?;
    let customer = format!("customer-{}", std::process::id());
    // The second order of the umbrella fails, as the table has it already, and costs nothing.
    for item in ["umbrella", "umbrella", "hat", "scarf", "gloves"] {
        match shop.order(&customer, item).await {
            Ok(remaining) => println!("{item}: ordered, {remaining} more today"),
            Err(error) => println!("{item}: not ordered: {error}"),
        }
    }
    Ok(())
}
