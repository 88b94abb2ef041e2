(namespace_declaration name: (_) @name) @definition.module
(class_declaration name: (_) @name) @definition.class
(struct_declaration name: (_) @name) @definition.class
(record_declaration name: (_) @name) @definition.class
(enum_declaration name: (_) @name) @definition.class
(interface_declaration name: (_) @name) @definition.interface
(delegate_declaration name: (_) @name) @definition.type
(method_declaration name: (_) @name) @definition.method
(constructor_declaration name: (_) @name) @definition.method
(destructor_declaration "~" @receiver name: (_) @name) @definition.method
(operator_declaration operator: _ @name) @definition.operator
(conversion_operator_declaration type: (_) @name) @definition.operator
(indexer_declaration "this" @name) @definition.method
(property_declaration name: (_) @name value: (arrow_expression_clause)) @definition.method
(property_declaration name: (_) @name
  accessors: (accessor_list (accessor_declaration body: (_)))) @definition.method
(local_function_statement name: (_) @name) @definition.function
(field_declaration (modifier) @modifier (variable_declaration (variable_declarator name: (_) @name))
  (#eq? @modifier "const")) @definition.constant
(field_declaration (modifier) @modifier (modifier) @second
  (variable_declaration (variable_declarator name: (_) @name))
  (#eq? @modifier "static") (#eq? @second "readonly")) @definition.constant
