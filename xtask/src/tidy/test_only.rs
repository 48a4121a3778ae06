//! Finds code that is compiled for tests only: rules do not judge it.

/// Whether an item is compiled for tests only.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg")
            && (condition == "test"
                || condition.starts_with("all (test")
                || condition.starts_with("all(test"))
    })
}

/// The submodules that are declared for tests only.
pub fn test_modules(module: &[String], syntax: &syn::File) -> impl Iterator<Item = Vec<String>> {
    syntax.items.iter().filter_map(move |item| match item {
        syn::Item::Mod(declared) if is_for_tests(&declared.attrs) => {
            let mut path = module.to_vec();
            path.push(declared.ident.to_string());
            Some(path)
        }
        _ => None,
    })
}
