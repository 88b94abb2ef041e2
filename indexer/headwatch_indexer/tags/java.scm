(class_declaration name: (_) @name) @definition.class
(enum_declaration name: (_) @name) @definition.class
(record_declaration name: (_) @name) @definition.class
(interface_declaration name: (_) @name) @definition.interface
(annotation_type_declaration name: (_) @name) @definition.interface
(method_declaration name: (_) @name) @definition.method
(annotation_type_element_declaration name: (_) @name) @definition.method
(constructor_declaration name: (_) @name) @definition.method
(compact_constructor_declaration name: (_) @name) @definition.method
(constant_declaration declarator: (variable_declarator name: (_) @name)) @definition.constant
(field_declaration (modifiers "static") @modifiers
  declarator: (variable_declarator name: (_) @name) (#match? @modifiers "\\bfinal\\b")) @definition.constant
