-- Orders: what is asked of somebody who is there, in a list.

local function orders_key(model, pk)
  return model.name .. ':' .. pk .. ':orders'
end
