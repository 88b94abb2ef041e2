(class_definition name: (_) @name) @definition.class
(object_definition name: (_) @name) @definition.class
(package_object name: (_) @name) @definition.class
(enum_definition name: (_) @name) @definition.class
(trait_definition name: (_) @name) @definition.interface
(given_definition name: (_) @name) @definition.class
(function_definition name: (_) @name) @definition.function
(function_declaration name: (_) @name) @definition.function
(type_definition name: (_) @name) @definition.type
(package_clause name: (_) @name body: (_)) @definition.module
(template_body (val_definition pattern: (identifier) @name
  (#match? @name "^[A-Z]")) @definition.constant)
(compilation_unit (val_definition pattern: (identifier) @name
  (#match? @name "^[A-Z]")) @definition.constant)
