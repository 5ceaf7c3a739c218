-- Orders: a list of what others ask of a presence.

local function orders_key(model, pk)
  return model.name .. ':' .. pk .. ':orders'
end
