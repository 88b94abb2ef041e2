(function_item name: (_) @name) @definition.function
(function_signature_item name: (_) @name) @definition.function
(struct_item name: (_) @name) @definition.class
(enum_item name: (_) @name) @definition.class
(union_item name: (_) @name) @definition.class
(trait_item name: (_) @name) @definition.interface
(source_file (type_item name: (_) @name) @definition.type)
(mod_item body: (declaration_list (type_item name: (_) @name) @definition.type))
(macro_definition name: (_) @name) @definition.function
(mod_item name: (_) @name body: (_)) @definition.module
(impl_item type: (_) @name) @scope
(source_file (const_item name: (identifier) @name) @definition.constant)
(declaration_list (const_item name: (identifier) @name) @definition.constant)
(source_file (static_item name: (_) @name) @definition.constant)
(declaration_list (static_item name: (_) @name) @definition.constant)
