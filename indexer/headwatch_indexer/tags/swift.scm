(class_declaration "extension" name: (_) @name) @scope
(class_declaration ["class" "struct" "enum" "actor"] name: (_) @name) @definition.class
(protocol_declaration name: (_) @name) @definition.interface
(protocol_function_declaration . name: (_) @name) @definition.method
(protocol_function_declaration (modifiers) . name: (_) @name) @definition.method
(function_declaration "func" . name: (_) @name) @definition.function
(init_declaration "init" @name) @definition.method
(deinit_declaration "deinit" @name) @definition.method
(subscript_declaration "subscript" @name) @definition.method
(property_declaration name: (pattern bound_identifier: (_) @name)
  computed_value: (_)) @definition.computed
(typealias_declaration . name: (_) @name) @definition.type
(typealias_declaration (modifiers) . name: (_) @name) @definition.type
(source_file (property_declaration (value_binding_pattern "let")
  name: (pattern bound_identifier: (_) @name)) @definition.constant)
(class_body (property_declaration (modifiers (property_modifier) @static) (value_binding_pattern "let")
  name: (pattern bound_identifier: (_) @name) (#eq? @static "static")) @definition.constant)
(enum_class_body (property_declaration (modifiers (property_modifier) @static) (value_binding_pattern "let")
  name: (pattern bound_identifier: (_) @name) (#eq? @static "static")) @definition.constant)
