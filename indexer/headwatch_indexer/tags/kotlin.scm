(class_declaration "interface" name: (_) @name) @definition.interface
(class_declaration name: (_) @name) @definition.class
(object_declaration name: (_) @name) @definition.class
(companion_object name: (_) @name) @scope
(function_declaration (user_type) @receiver . "." . name: (_) @name) @definition.method
(function_declaration (nullable_type) @receiver . "." . name: (_) @name) @definition.method
(function_declaration name: (_) @name) @definition.function
(secondary_constructor "constructor" @name) @definition.method
(type_alias type: (_) @name) @definition.type
(property_declaration (modifiers (property_modifier "const"))
  (variable_declaration . (identifier) @name)) @definition.constant
(source_file (property_declaration (variable_declaration . (identifier) @name)
  (#match? @name "^[A-Z][A-Z0-9_]+$")) @definition.constant)
