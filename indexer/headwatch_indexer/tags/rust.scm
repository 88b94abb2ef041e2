(function_item name: (_) @name) @definition.function
(function_signature_item name: (_) @name) @definition.function
(struct_item name: (_) @name) @definition.class
(enum_item name: (_) @name) @definition.class
(union_item name: (_) @name) @definition.class
(trait_item name: (_) @name) @definition.interface
(type_item name: (_) @name) @definition.type
(macro_definition name: (_) @name) @definition.function
(mod_item name: (_) @name body: (_)) @definition.module
(impl_item type: (_) @name) @scope
(const_item name: (identifier) @name) @definition.constant
(static_item name: (_) @name) @definition.constant
