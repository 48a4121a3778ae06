//! Names of registrations (STags) that nobody can guess.

/// Names drawn at a time.
const DRAWN: usize = 64;

/// Draws names from the system's random source, for [`crate::iwarp::IwarpProvider::new`].
///
/// Panics if the system has no random bytes any more: if names can be guessed, any peer could reach
/// memory that is meant for another, so the process cannot continue.
pub fn random_names() -> Box<dyn FnMut() -> u32> {
    let mut drawn = [0; 4 * DRAWN];
    let mut used = drawn.len();
    Box::new(move || {
        if used == drawn.len() {
            getrandom::fill(&mut drawn).expect("the system's random source");
            used = 0;
        }
        let mut name = [0; 4];
        name.copy_from_slice(&drawn[used..used + 4]);
        used += 4;
        u32::from_le_bytes(name)
    })
}
