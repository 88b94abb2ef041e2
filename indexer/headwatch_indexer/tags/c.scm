(function_definition declarator: (_) @declarator) @definition.function
(struct_specifier name: (_) @name body: (_)) @definition.class
(union_specifier name: (_) @name body: (_)) @definition.class
(enum_specifier name: (_) @name body: (_)) @definition.type
(type_definition type: (struct_specifier name: (_) @name body: (_))) @definition.class
(type_definition type: (union_specifier name: (_) @name body: (_))) @definition.class
(type_definition type: (enum_specifier name: (_) @name body: (_))) @definition.type
(type_definition type: [(struct_specifier !name body: (_)) (union_specifier !name body: (_))]
  declarator: (_) @declarator) @definition.class
(type_definition type: [(struct_specifier name: (_)) (union_specifier name: (_)) (enum_specifier)]
  declarator: (_) @declarator) @definition.type
(type_definition type: [(primitive_type) (type_identifier) (sized_type_specifier)]
  declarator: (_) @declarator) @definition.type
(preproc_function_def name: (_) @name) @definition.function
(preproc_def name: (_) @name value: (_)) @definition.constant
(translation_unit (declaration (type_qualifier) @qualifier
  declarator: (init_declarator) @declarator (#eq? @qualifier "const")) @definition.constant)
