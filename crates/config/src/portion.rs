//! Portions as text: `10%`, or `1 in 1000`.

use tollgate::middleware::Portion;

/// A portion, or the way out.
pub(super) fn parse(text: &str) -> Result<Portion, String> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let text = text.trim();
    let percent = text.strip_suffix('%').or_else(|| text.strip_suffix("percent"));
    if let Some(percent) = percent {
        return match number(percent) {
            Some(percent) => {
                Portion::try_percent(percent).ok_or_else(|| "use 0% to 100%".to_owned())
            }
            None => {
                Err("write whole percent, such as \"10%\"; less than one is \"1 in 1000\""
                    .to_owned())
            }
        };
    }
    let whole = text.strip_prefix("1 in ").and_then(number).filter(|whole| *whole > 0);
    whole.map(Portion::one_in).ok_or_else(|| "write \"10%\" or \"1 in 1000\"".to_owned())
}
