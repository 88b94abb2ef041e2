; What TypeScript adds to JavaScript.
(class_body (public_field_definition name: (_) @name
  value: [(arrow_function) (function_expression)]) @definition.method)
(class_body (abstract_method_signature name: (_) @name) @definition.method)
(abstract_class_declaration name: (_) @name) @definition.class
(export_statement declaration: (abstract_class_declaration name: (_) @name)) @definition.class
(interface_declaration name: (_) @name) @definition.interface
(export_statement declaration: (interface_declaration name: (_) @name)) @definition.interface
(type_alias_declaration name: (_) @name) @definition.type
(export_statement declaration: (type_alias_declaration name: (_) @name)) @definition.type
(enum_declaration name: (_) @name) @definition.class
(export_statement declaration: (enum_declaration name: (_) @name)) @definition.class
(internal_module name: (_) @name) @definition.module
(export_statement declaration: (internal_module name: (_) @name)) @definition.module
(module name: (_) @name) @definition.module
(export_statement declaration: (module name: (_) @name)) @definition.module
(ambient_declaration (module name: (_) @name)) @definition.module
(ambient_declaration (function_signature name: (_) @name)) @definition.function
(ambient_declaration (class_declaration name: (_) @name)) @definition.class
(ambient_declaration (enum_declaration name: (_) @name)) @definition.class
(ambient_declaration (interface_declaration name: (_) @name)) @definition.interface
(ambient_declaration (lexical_declaration . "const" . (variable_declarator name: (identifier) @name))) @definition.constant
(export_statement declaration: (ambient_declaration (_ name: (_) @name))) @widen
(module (statement_block (export_statement declaration: (function_signature name: (_) @name)) @definition.function))
