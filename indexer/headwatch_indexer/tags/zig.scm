(struct_declaration (function_declaration name: (_) @name) @definition.method)
(enum_declaration (function_declaration name: (_) @name) @definition.method)
(union_declaration (function_declaration name: (_) @name) @definition.method)
(opaque_declaration (function_declaration name: (_) @name) @definition.method)
(function_declaration name: (_) @name) @definition.function
(variable_declaration . (identifier) @name
  [(struct_declaration) (enum_declaration) (union_declaration) (opaque_declaration)]) @definition.class
(variable_declaration . (identifier) @name (error_set_declaration)) @definition.type
(source_file (variable_declaration . (identifier) @name) @definition.constant
  (#not-match? @definition.constant "@import"))
(struct_declaration (variable_declaration . (identifier) @name) @definition.constant)
(test_declaration (string (string_content) @name)) @definition.function
